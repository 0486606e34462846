#!/bin/sh
# Writes the stored figures of whole steps anew (tests/data/step_errors.csv, step_kernels_known.csv) from what the given test binary predicts. Review the difference: an error that
# grew needs a reason, and a new difference in kernels needs one in its last column.
root=$(CDPATH="" cd -- "$(dirname -- "$0")/../.." && pwd)
tests=${1:-$root/build/release/bin/rooftile_tests}
ROOFTILE_REWRITE=1 "$tests" --gtest_filter='StepTime.*:StepKernels.*' --gtest_brief=1
