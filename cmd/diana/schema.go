// SPDX-License-Identifier: MIT

package main

// schemaCommand prints the schema of configurations.
type schemaCommand struct{}

// Help is the end of what --help prints.
func (schemaCommand) Help() string {
	return `An editor that knows it completes and checks configurations while they are written.`
}

// Run prints it.
func (schemaCommand) Run(o *output) error {
	o.printf("%s", vocabulary().Schema())
	return o.failed
}
