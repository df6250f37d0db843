"""The files of a run folder, each written whole or not at all."""
