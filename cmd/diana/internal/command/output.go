// SPDX-License-Identifier: MIT

package command

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/alecthomas/kong"

	"github.com/diana-limiter/diana/config"
)

// Output is where a command writes: results to out, diagnostics to err.
type Output struct {
	Out, Err io.Writer
	Failed   error // the first error of writing to out
}

// Printf writes a result.
func (o *Output) Printf(format string, args ...any) {
	if _, err := fmt.Fprintf(o.Out, format, args...); err != nil && o.Failed == nil {
		o.Failed = err
	}
}

// Complainf writes a diagnostic. If that fails there is no place to say so.
func (o *Output) Complainf(format string, args ...any) { _, _ = fmt.Fprintf(o.Err, format, args...) }

// Faults prints every error of a configuration that could not be loaded, as
// FILE:LINE:COLUMN: message, and returns errReported.
func (o *Output) Faults(s Settings, err error) error {
	var list config.Errors
	var path *fs.PathError
	switch {
	case errors.As(err, &list):
		for _, e := range list {
			o.Fault(e, "")
		}
	case errors.As(err, &path):
		o.Complainf("%s: %v\n", path.Path, path.Err)
	default:
		o.Complainf("%s: %v\n", s, err)
	}
	return ErrReported
}

// DescriptorFaults is faults for files of descriptors, whose errors name the file.
func (o *Output) DescriptorFaults(err error) error {
	var list config.Errors
	var path *fs.PathError
	if errors.As(err, &list) || errors.As(err, &path) {
		return o.Faults(Settings{}, err)
	}
	o.Complainf("%v\n", err)
	return ErrReported
}

// Fault prints an error or a warning about a configuration. kind is a prefix of its message.
func (o *Output) Fault(e config.Error, kind string) {
	if e.Line > 0 { // otherwise it says how many more there are
		e.Message = kind + e.Message
	}
	o.Complainf("%s\n", e)
}

// Converted prints a configuration, and remarks about it. It returns ErrReported if there are some.
func (o *Output) Converted(yaml string, remarks config.Errors) error {
	o.Printf("%s", yaml)
	for _, e := range remarks {
		o.Fault(e, "")
	}
	if len(remarks) > 0 {
		return ErrReported
	}
	return nil
}

// Misused prints the error of a command line and returns the exit status. A command line with --help
// has none.
func (o *Output) Misused(ctx *kong.Context, err error) int {
	if errors.Is(err, ErrHelp) {
		return StatusGood
	}
	name := "diana"
	if ctx != nil && ctx.Selected() != nil {
		name = ctx.Selected().FullPath()
	}
	o.Complainf("%s: %v\nTry '%s --help'.\n", name, err, name)
	return StatusUsage
}
