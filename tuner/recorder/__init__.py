"""Records of a sweep for MLflow. They are first written to a spool on disk and then sent."""
