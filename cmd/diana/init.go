// SPDX-License-Identifier: MIT

package main

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/diana-limiter/diana/cmd/diana/internal/command"
)

//go:embed starter.yaml
var starter []byte

// initCommand writes a configuration to start from.
type initCommand struct {
	File string `arg:"" optional:"" default:"diana.yaml" help:"File to write (${default}). - is standard output."`
}

// Help is the end of what --help prints.
func (initCommand) Help() string {
	return `The file limits accounts, IP addresses and one expensive path, and explains each key. Diana never overwrites an existing file.`
}

// Run writes the file.
func (c *initCommand) Run(o *command.Output) error {
	if err := command.Named(c.File); err != nil {
		return err
	}
	if c.File == command.Stdin {
		o.Printf("%s", starter)
		return nil
	}
	err := writeNew(c.File, starter)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists, and init does not overwrite it", c.File)
	}
	if err != nil {
		return o.Faults(command.Settings{File: c.File}, err)
	}
	o.Printf("%s written. Next:\n\n", c.File)
	o.Printf("  %s check %s\n  %[1]s serve --config %[2]s\n", os.Args[0], c.File)
	return nil
}

// writeNew writes a file that must not exist yet. After an error there is none.
func writeNew(name string, text []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(name))
	}
	return nil
}
