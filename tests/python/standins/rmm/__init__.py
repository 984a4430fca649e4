"""A stand-in for RAPIDS' RMM: a resource by callbacks, and one for each device."""
