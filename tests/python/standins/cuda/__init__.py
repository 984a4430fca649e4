"""A stand-in for NVIDIA's cuda-python."""
