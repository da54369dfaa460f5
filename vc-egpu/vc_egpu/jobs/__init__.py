"""The Job controller for clusters without Volcano; README.md maps its rooms."""
