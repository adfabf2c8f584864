"""A run whose engine keys are tasks of a Ray cluster: a task is one share of the run, as ``--shard`` makes them.

``command`` is the flow, ``share`` what is known of one task here, ``node`` what stands where the task runs, and
``cluster`` alone knows Ray.
"""
