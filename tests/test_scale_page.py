"""The projections in docs/scale.md are those of the cost model."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent.parent / "scripts" / "update_scale.py"


def test_projections_are_up_to_date():
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--check"], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
