"""A stand-in for the parts of vLLM that examples/vllm is made of: base classes, and where things are registered."""
