"""A small OpenAI-compatible server around a model of transformers, one request at a time, for CPUs."""
