"""For all tests: time never fails one."""

from hypothesis import HealthCheck, settings

settings.register_profile("rig", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rig")
