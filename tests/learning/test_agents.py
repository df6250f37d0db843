"""Many agents as one axis."""

import jax.numpy as jnp
import numpy as np

from qpensieve.learning.losses import flatten, over_agents


def test_a_function_is_applied_to_every_agent():
    doubled, total = over_agents(lambda args: (2 * args[0], args[0] + args[1].sum()), (jnp.arange(3), jnp.ones((3, 4))))
    np.testing.assert_array_equal(doubled, [0, 2, 4])
    np.testing.assert_array_equal(total, [4, 5, 6])


def test_leaves_lie_one_after_the_other_in_the_order_of_the_tree():
    tree = (jnp.arange(4.0).reshape(2, 2), {"bias": jnp.array([7.0])})
    np.testing.assert_array_equal(flatten(tree), [0, 1, 2, 3, 7])
