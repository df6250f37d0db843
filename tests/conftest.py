"""Strict settings for every test: no silent rank promotion, no reused random key, compiled code kept between runs."""

from pathlib import Path

import jax

import qpensieve.envs.lunar_lander  # noqa: F401  (loads Box2D safely before a test module does)

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_debug_key_reuse", True)
jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parents[1] / ".cache" / "jax"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
