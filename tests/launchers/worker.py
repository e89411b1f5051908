"""Stands for a process that uses the GPU; `test_box.py` finds it by its command line."""

import os
import sys
import time

if "--own-session" in sys.argv:
    os.setsid()  # As torchrun of 2.15 starts its workers.
while True:
    time.sleep(1)
