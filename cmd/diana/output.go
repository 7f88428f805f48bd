// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/alecthomas/kong"

	"github.com/diana-limiter/diana/config"
)

// output is where a command writes: results to out, diagnostics to err.
type output struct {
	out, err io.Writer
	failed   error // the first error of writing to out
}

// printf writes a result.
func (o *output) printf(format string, args ...any) {
	if _, err := fmt.Fprintf(o.out, format, args...); err != nil && o.failed == nil {
		o.failed = err
	}
}

// complainf writes a diagnostic. If that fails there is no place to say so.
func (o *output) complainf(format string, args ...any) { _, _ = fmt.Fprintf(o.err, format, args...) }

// faults prints every error of a configuration that could not be loaded, as
// FILE:LINE:COLUMN: message, and returns errReported.
func (o *output) faults(s settings, err error) error {
	var list config.Errors
	var path *fs.PathError
	switch {
	case errors.As(err, &list):
		for _, e := range list {
			o.fault(e, "")
		}
	case errors.As(err, &path):
		o.complainf("%s: %v\n", path.Path, path.Err)
	default:
		o.complainf("%s: %v\n", s, err)
	}
	return errReported
}

// descriptorFaults is faults for files of descriptors, whose errors name the file.
func (o *output) descriptorFaults(err error) error {
	var list config.Errors
	var path *fs.PathError
	if errors.As(err, &list) || errors.As(err, &path) {
		return o.faults(settings{}, err)
	}
	o.complainf("%v\n", err)
	return errReported
}

// fault prints an error or a warning about a configuration. kind is a prefix of its message.
func (o *output) fault(e config.Error, kind string) {
	o.complainf("%s:%d:%d: %s%s\n", e.File, e.Line, e.Column, kind, e.Message)
}

// misused prints the error of a command line and returns the exit status. A command line with --help
// has none.
func (o *output) misused(ctx *kong.Context, err error) int {
	if errors.Is(err, errHelp) {
		return statusGood
	}
	name := "diana"
	if ctx != nil && ctx.Selected() != nil {
		name += " " + ctx.Selected().Name
	}
	o.complainf("%s: %v\nTry '%s --help'.\n", name, err, name)
	return statusUsage
}
