// SPDX-License-Identifier: MIT

package main

import (
	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/internal/apikeys"
)

// keyCommand makes API keys.
type keyCommand struct {
	New keyNewCommand `cmd:"" help:"Print a new API key, which is nowhere else, and its line for the file of identity.keys."`
}

// keyNewCommand makes an API key.
type keyNewCommand struct {
	Account string `arg:"" help:"Account that the key proves."`
	Class   string `help:"Class of the account, for rules with class: key:class."`
	Until   string `placeholder:"DATE" help:"Last day of the key in UTC, such as 2027-01-31, or the moment at which it ends. Default: none."`
}

// Run prints the key and its line.
func (c *keyNewCommand) Run(o *command.Output) error {
	key, line, err := apikeys.New(c.Account, c.Class, c.Until)
	if err != nil {
		return command.Misuse(err)
	}
	o.Printf("%s\n%s\n", key, line)
	return nil
}
