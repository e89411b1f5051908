//! What the kernel tells of one open descriptor of a DRM device:
//! `/proc/PID/fdinfo/FD` (kernel documentation, gpu/drm-usage-stats).
