"""What a run writes: the files of its folder, written whole or not at all."""
