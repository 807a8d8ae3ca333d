"""Check derivatives in tests: `pb.testing.check_rules`, `pb.testing.check_pattern`."""

from pullback.testing.check import check_rules as check_rules
from pullback.testing.findings import Finding as Finding, Report as Report
from pullback.testing.intended import intended as intended
from pullback.testing.patterns import check_pattern as check_pattern

__all__ = ["Finding", "Report", "check_pattern", "check_rules", "intended"]
