// SPDX-License-Identifier: MIT

package config

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/plan"
)

// Whatever the text, there are errors with places in it, or a configuration that
// compiles; and soon.
func FuzzParse(f *testing.F) {
	for _, file := range files(f, "*.yaml") {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	v := words()
	f.Fuzz(func(t *testing.T, data []byte) {
		began := time.Now()
		for _, parse := range []func(string, []byte) (*Config, error){v.Parse, v.ParseRemote} {
			c, err := parse("x", data)
			if err == nil {
				if err := c.Check(); err != nil {
					t.Errorf("accepted, and Check rejects it: %v", err)
				}
				if _, err := plan.Compile(c.Limits, c.Identity, c.Paths, v.Actors); err != nil {
					t.Errorf("accepted, and does not compile: %v", err)
				}
				continue
			}
			var errs Errors
			if c != nil || !errors.As(err, &errs) || len(errs) == 0 {
				t.Fatalf("got %v and %v", c, err)
			}
			end := bytes.Count(data, []byte("\n")) + bytes.Count(data, []byte("\r")) + 2
			for _, e := range errs {
				if e.Line < 1 || e.Line > end || e.Column < 1 || e.Column > len(data)+2 || e.Message == "" || strings.ContainsAny(e.Message, "\n\r") {
					t.Errorf("error %q", e)
				}
			}
		}
		if took := time.Since(began); took > 2*most {
			t.Errorf("took %v", took)
		}
	})
}
