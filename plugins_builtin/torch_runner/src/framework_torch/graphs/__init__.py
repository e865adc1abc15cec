"""Steps as graphs that were captured when the runner was bound.

modes.py      what may be a graph: nothing, the parts between attention, or all of a step
dispatch.py   which graph serves a step; nothing here knows a device
buffers.py    tensors that stay, which every step of a graph is copied into
capture.py    recording, cut at attention or whole, and replaying
"""
