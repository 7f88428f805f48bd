// SPDX-License-Identifier: MIT

package source_test

import (
	"testing"

	"go.uber.org/goleak"
)

// Each test closes its Sources, and leaves no goroutine.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
