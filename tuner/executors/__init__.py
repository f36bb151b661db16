"""Where trials run: in this process (`local`) or on Ray (`ray_runner`). Both carry out what the driver decides."""
