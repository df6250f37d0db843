"""Pieces that learning algorithms are made of."""
