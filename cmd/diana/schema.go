// SPDX-License-Identifier: MIT

package main

import "github.com/diana-limiter/diana/cmd/diana/internal/command"

// schemaCommand prints the JSON Schema of configuration files.
type schemaCommand struct{}

// Help is the end of what --help prints.
func (schemaCommand) Help() string {
	return `With the schema, an editor completes and checks configurations as you write them.`
}

// Run prints the schema.
func (schemaCommand) Run(o *command.Output) error {
	o.Printf("%s", command.Vocabulary().Schema())
	return o.Failed
}
