"""Fused kernels (Pallas, by Triton) for updates that plain XLA spends on launches and on moving activations."""
