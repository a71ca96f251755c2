"""RWKV-7 inside: weights packed, states, the recurrence, and its steps on a CPU and on a GPU. `assistant.model` is the door."""
