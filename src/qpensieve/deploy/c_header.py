"""Write a policy file as a C header: one function for deterministic actions, C99 with <math.h> alone."""

from pathlib import Path

import numpy as np

from qpensieve.deploy.qpensieve_policy import Policy
from qpensieve.errors import UserError
from qpensieve.records.files import write_text

HEADS = ("squashed gaussian", "squashed")
"""Heads whose deterministic action is tanh of the network's first outputs."""
TEMPLATE = """\
/* {about}
   Written by `qpensieve export-policy --header`. Preference: {objectives}; 0 or more, sum 1. */
#ifndef QPENSIEVE_POLICY_H
#define QPENSIEVE_POLICY_H
#include <math.h>
enum {{ QP_OBS = {obs}, QP_OBJECTIVES = {objectives_size}, QP_ACTIONS = {actions}, QP_WIDEST = {widest} }};
{arrays}
static void qp_layer(const float *w, const float *b, int in, int out, int is_last, const float *x, float *y) {{
  for (int j = 0; j < out; j++) y[j] = b[j];
  for (int i = 0; i < in; i++)
    for (int j = 0; j < out; j++) y[j] += x[i] * w[i * out + j];
  for (int j = 0; j < out; j++)
    if (!is_last && y[j] < 0) y[j] = 0;
}}
/* The action that the environment takes. */
static void qp_act(const float obs[QP_OBS], const float preference[QP_OBJECTIVES], float action[QP_ACTIONS]) {{
  float x[QP_WIDEST], y[QP_WIDEST];
  for (int i = 0; i < QP_OBS; i++) x[i] = obs[i];
  for (int i = 0; i < QP_OBJECTIVES; i++) x[QP_OBS + i] = preference[i];
{layers}
  for (int i = 0; i < QP_ACTIONS; i++)
    action[i] = qp_low[i] + (tanhf({result}[i]) + 1) / 2 * (qp_high[i] - qp_low[i]);
}}
#endif
"""


def write_header(policy: Policy, out: Path) -> Path:
    """Write the header; returns its path.

    Raises:
        ValueError: A policy of this kind cannot be written.
    """
    about, arrays = policy.about, policy.arrays
    is_plain = about["head"] in HEADS and about["is_conditioned"] and not about["is_normalized"]
    if not is_plain or about["activation"] != "relu" or about["obs_indices"] or len(arrays["weight_0"]) > 1:
        raise UserError(f"a C header can be written of qpensieve, mosac and cnder, not of {about['algo']}")
    widths = [arrays["weight_0"].shape[1], *(arrays[f"bias_{i}"].shape[1] for i in range(about["num_layers"]))]
    named = {f"{kind}_{i}": arrays[f"{kind}_{i}"] for i in range(about["num_layers"]) for kind in ("weight", "bias")}
    named |= {"low": np.array(about["low"]), "high": np.array(about["high"])}
    names = ["x", "y"] * len(widths)
    layers = [
        f"  qp_layer(qp_weight_{i}, qp_bias_{i}, {widths[i]}, {widths[i + 1]}, {int(i == len(widths) - 2)}, "
        f"{names[i]}, {names[i + 1]});"
        for i in range(len(widths) - 1)
    ]
    text = TEMPLATE.format(
        about=f"{about['domain']}, {about['algo']}, step {about['step']}, seed {about['seed']}",
        objectives=", ".join(policy.objectives),
        obs=about["obs_size"],
        objectives_size=len(policy.objectives),
        actions=about["action_size"],
        widest=max(widths),
        arrays="\n".join(f"static const float qp_{name}[] = {{{_numbers(x)}}};" for name, x in named.items()),
        layers="\n".join(layers),
        result=names[len(widths) - 1],
    )
    write_text(out, text)
    return out


def _numbers(values: np.ndarray) -> str:
    return ", ".join(f"{value:.9g}" for value in values.ravel().tolist())
