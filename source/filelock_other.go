// SPDX-License-Identifier: MIT

//go:build !unix || solaris || aix

package source

import (
	"context"
	"errors"
	"fmt"
)

// lock returns an error, because this system has no locks that end with their program.
func lock(context.Context, string) (unlock func(), err error) {
	return nil, fmt.Errorf("files cannot be locked on this system, so a change of another writer could be lost: %w", errors.ErrUnsupported)
}
