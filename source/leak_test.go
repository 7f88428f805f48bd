// SPDX-License-Identifier: MIT

package source_test

import (
	"testing"

	"go.uber.org/goleak"
)

// Every Source of every test has been closed when the tests end, and nothing goes on.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
