// SPDX-License-Identifier: MIT

package command

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"time"

	"github.com/alecthomas/kong"
)

// Exit statuses.
const (
	StatusGood  = 0
	StatusBad   = 1 // the input is not valid, or the command failed
	StatusUsage = 2 // the command line is wrong
)

// UsageError is an error in the command line that the command itself found.
type UsageError struct{ error }

// Misuse returns err as an error in the command line.
func Misuse(err error) error { return UsageError{err} }

// Usagef returns an error in the command line.
func Usagef(format string, args ...any) error { return Misuse(fmt.Errorf(format, args...)) }

var (
	// ErrReported ends a command that has already printed its error.
	ErrReported = errors.New("reported")

	// ErrHelp ends the parsing of a command line with --help, after the help is printed. Rejected:
	// kong's default, which ends the process.
	ErrHelp = errors.New("help printed")
)

// NoneEmpty returns an error if a flag of the command line has no file or address, such as one from a variable
// that is not set. The flag's default would be a surprise.
func NoneEmpty(command *kong.Context) error {
	for _, p := range command.Path {
		f := p.Flag
		if f == nil || f.Target.Kind() != reflect.String || f.Target.String() != "" {
			continue
		}
		switch f.PlaceHolder {
		case "FILE", "SOCKET":
			return fmt.Errorf("--%s: expected the name of a file, found an empty one", f.Name)
		case "ADDR":
			return fmt.Errorf("--%s: expected an address, found an empty one", f.Name)
		}
	}
	return nil
}

var durations = regexp.MustCompile(`^[-+]?([0-9.]+(ns|us|µs|ms|s|m|h))+$`)

// ReadDuration reads a duration of the command line. kong would not say that one is too long.
func ReadDuration(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto("duration", &text); err != nil {
		return err
	}
	d, err := time.ParseDuration(text)
	switch {
	case err == nil:
		target.SetInt(int64(d))
		return nil
	case durations.MatchString(text):
		return fmt.Errorf("expected a duration of at most 2562047h but got %q", text)
	}
	return fmt.Errorf("expected duration but got %q, such as 500ms or 60s", text)
}

// ValidTimeout returns an error if the duration of --NAME-timeout is too short. Servers differ in what 0 means: no
// limit, the default, or at once. So it is not accepted.
func ValidTimeout(name string, d time.Duration) error {
	switch {
	case d > 0 && d < time.Millisecond:
		return fmt.Errorf("--%s-timeout: %v, expected at least 1ms", name, d)
	case d <= 0:
		return fmt.Errorf("--%s-timeout: %v, expected a duration above 0, such as 60s; for no limit a long one, such as 8760h", name, d)
	}
	return nil
}
