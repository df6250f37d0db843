"""Watching policies act: a page in the browser where one turns the preference, and films of the same."""
