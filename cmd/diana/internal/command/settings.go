// SPDX-License-Identifier: MIT

package command

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/jwt"
	"github.com/diana-limiter/diana/source/etcd"
	"github.com/diana-limiter/diana/source/zookeeper"
)

// Vocabulary returns the words that configurations may use in this program.
func Vocabulary() config.Vocabulary {
	v := config.DefaultVocabulary()
	v.Sources = append(v.Sources, etcd.Kind(), zookeeper.Kind())
	v.Actors, v.Verifiers = append(v.Actors, jwt.Kind()), append(v.Verifiers, jwt.Verifier())
	v.Reading = readFrugally
	return v
}

// Settings is the source of the configuration: a file, or, without a name, the demonstration that
// is part of this program.
type Settings struct {
	File  string
	Empty bool // without a name: no rules, in place of the demonstration
}

// UsualFile is the configuration file that is used if none is named.
const UsualFile = "diana.yaml"

//go:embed demo.yaml
var demo []byte

// DemoSource is the name of the demonstration in errors, status and metrics.
const DemoSource = "built-in demonstration"

// Chosen returns the settings for the value of --config. A usual file that exists and cannot be read
// is an error later, because a fallback to the demonstration would hide that it is not active.
func Chosen(name string) Settings {
	if name != "" {
		return Settings{File: name}
	}
	if _, err := os.Lstat(UsualFile); !errors.Is(err, fs.ErrNotExist) {
		return Settings{File: UsualFile}
	}
	return Settings{}
}

// Stdin is the name of standard input on the command line.
const Stdin = "-"

// Named returns an error if a file on the command line has no name, or if standard input is named twice. A variable that
// is not set makes an empty name.
func Named(files ...string) error {
	if slices.Contains(files, "") {
		return Usagef("the name of a file is empty")
	}
	if first := slices.Index(files, Stdin); first >= 0 && slices.Contains(files[first+1:], Stdin) {
		return Usagef("- is standard input, which can be read once, found it twice")
	}
	return nil
}

// NameOf returns the name of a file in messages.
func NameOf(file string) string {
	if file == Stdin {
		return "stdin"
	}
	return file
}

// OpenFile opens a file, or standard input.
func OpenFile(name string) (io.ReadCloser, error) {
	if name == Stdin {
		return io.NopCloser(os.Stdin), nil
	}
	return os.Open(name)
}

// ReadText returns the text of a configuration in a file, or in standard input. Of one that is too large it returns enough
// for the parser to see that.
func ReadText(name string) ([]byte, error) { return readUpTo(name, bounds.MaxConfig) }

// ReadLong is ReadText for the text of another program, which is larger than a remote configuration.
func ReadLong(name string) ([]byte, error) { return readUpTo(name, bounds.MaxFile) }

func readUpTo(name string, most int64) ([]byte, error) {
	f, err := OpenFile(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	return io.ReadAll(io.LimitReader(f, most+1))
}

// BuiltIn reports whether the configuration is part of this program.
func (s Settings) BuiltIn() bool { return s.File == "" }

// String returns the name of the settings in messages.
func (s Settings) String() string {
	if s.BuiltIn() {
		return "the " + DemoSource
	}
	return NameOf(s.File)
}

// Load is Read. It prints the errors of one that is not valid.
func (s Settings) Load(o *Output) (*config.Config, error) {
	c, err := s.Read()
	if err != nil {
		return nil, o.Faults(s, err)
	}
	return c, nil
}

// Read returns the configuration.
func (s Settings) Read() (*config.Config, error) {
	switch {
	case s.Empty:
		c, err := Vocabulary().Parse("no file", []byte("limits: []"))
		if err == nil {
			c.Warnings = nil // that there are no limits
		}
		return c, err
	case s.BuiltIn():
		return Vocabulary().Parse(DemoSource, demo)
	case s.File == Stdin:
		text, err := ReadText(Stdin)
		if err != nil {
			return nil, err
		}
		return Vocabulary().Parse(s.String(), text)
	}
	return Vocabulary().Load(s.File)
}

// Text returns the text of the settings.
func (s Settings) Text() ([]byte, error) {
	switch {
	case s.Empty:
		return nil, nil
	case s.BuiltIn():
		return demo, nil
	}
	return os.ReadFile(s.File)
}

// Open returns a limiter that follows the settings.
func (s Settings) Open(options diana.Options) (*diana.Limiter, error) {
	options.Vocabulary = Vocabulary()
	if !s.BuiltIn() && s.File != Stdin {
		return options.Open(s.File)
	}
	c, err := s.Read()
	if err != nil {
		return nil, err
	}
	return options.New(c)
}

// Compile returns the rules of a configuration, ready to evaluate requests.
func Compile(c *config.Config) (*plan.Set, error) {
	return plan.Compile(c.Limits, c.Identity, c.Paths, Vocabulary().Actors)
}

// Rules returns how many rules there are, in words.
func Rules(n int) string {
	if n == 1 {
		return "1 rule"
	}
	return fmt.Sprintf("%d rules", n)
}
