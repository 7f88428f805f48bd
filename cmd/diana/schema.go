// SPDX-License-Identifier: MIT

package main

// schemaCommand prints the JSON Schema of configuration files.
type schemaCommand struct{}

// Help is the end of what --help prints.
func (schemaCommand) Help() string {
	return `With the schema, an editor completes and checks configurations as you write them.`
}

// Run prints the schema.
func (schemaCommand) Run(o *output) error {
	o.printf("%s", vocabulary().Schema())
	return o.failed
}
