// SPDX-License-Identifier: MIT

package main

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"slices"

	"github.com/alecthomas/kong"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/source/etcd"
	"github.com/diana-limiter/diana/source/zookeeper"
)

// vocabulary returns the words that configurations may use in this program.
func vocabulary() config.Vocabulary {
	v := config.DefaultVocabulary()
	v.Sources = append(v.Sources, etcd.Kind(), zookeeper.Kind())
	return v
}

// settings is the source of the configuration: a file, or, without a name, the demonstration that
// is part of this program.
type settings struct {
	file  string
	empty bool // without a name: no rules, in place of the demonstration
}

// usualFile is the configuration file that is used if none is named.
const usualFile = "diana.yaml"

//go:embed demo.yaml
var demo []byte

// demoSource is the name of the demonstration in errors, status and metrics.
const demoSource = "built-in demonstration"

// chosen returns the settings for the value of --config. A usual file that exists and cannot be read
// is an error later, because a fallback to the demonstration would hide that it is not active.
func chosen(name string) settings {
	if name != "" {
		return settings{file: name}
	}
	if _, err := os.Lstat(usualFile); !errors.Is(err, fs.ErrNotExist) {
		return settings{file: usualFile}
	}
	return settings{}
}

// named returns an error if a file on the command line has no name, such as one from a variable
// that is not set.
func named(files ...string) error {
	if slices.Contains(files, "") {
		return usagef("the name of a file is empty")
	}
	return nil
}

// noneEmpty returns an error if a flag of the command line has no file or address, such as one from a variable
// that is not set. The flag's default would be a surprise.
func noneEmpty(command *kong.Context) error {
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

func (s settings) builtIn() bool { return s.file == "" }

// String returns the name of the settings in messages.
func (s settings) String() string {
	if s.builtIn() {
		return "the " + demoSource
	}
	return s.file
}

// load returns the configuration. It prints the errors of one that is not valid.
func (s settings) load(o *output) (*config.Config, error) {
	c, err := s.read()
	if err != nil {
		return nil, o.faults(s, err)
	}
	return c, nil
}

func (s settings) read() (*config.Config, error) {
	switch {
	case s.empty:
		c, err := vocabulary().Parse("no file", []byte("limits: []"))
		if err == nil {
			c.Warnings = nil // that there are no limits
		}
		return c, err
	case s.builtIn():
		return vocabulary().Parse(demoSource, demo)
	}
	return vocabulary().Load(s.file)
}

// open returns a limiter that follows the settings.
func (s settings) open(options diana.Options) (*diana.Limiter, error) {
	options.Vocabulary = vocabulary()
	if !s.builtIn() {
		return options.Open(s.file)
	}
	c, err := s.read()
	if err != nil {
		return nil, err
	}
	return options.New(c)
}
