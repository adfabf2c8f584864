"""For all tests: time never fails one, and engines that they start can be interrupted."""

import signal

from hypothesis import HealthCheck, settings

settings.register_profile("rig", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rig")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell has it in the background; engines would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)
