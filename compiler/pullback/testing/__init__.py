"""Check derivative rules in tests: `pb.testing.check_rules`."""

from pullback.testing.check import check_rules as check_rules
from pullback.testing.findings import Finding as Finding, Report as Report
from pullback.testing.intended import intended as intended

__all__ = ["Finding", "Report", "check_rules", "intended"]
