// SPDX-License-Identifier: MIT

package main

import (
	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/cmd/diana/internal/convert"
)

// convertCommand prints the limits of another program as rules.
type convertCommand struct {
	Nginx convertNginxCommand `cmd:"" help:"Print rules for limit_req, limit_conn and limit_rate of nginx."`
	Envoy convertEnvoyCommand `cmd:"" help:"Print rules for the descriptors of envoyproxy/ratelimit."`
}

// Help is the end of what --help prints.
func (convertCommand) Help() string {
	return `What differs from the other program is a comment in the rules, and a line on standard error. A rule that would refuse more than the other program has mode: shadow. The exit status is 1 if something differs.`
}

// convertNginxCommand converts a configuration of nginx.
type convertNginxCommand struct {
	Server string `placeholder:"NAME" help:"Convert only the server with this server_name."`
	File   string `arg:"" help:"Configuration of nginx, or the output of nginx -T, which has included files. - is standard input."`
}

// Run prints the rules.
func (c *convertNginxCommand) Run(o *command.Output) error {
	if err := command.Named(c.File); err != nil {
		return err
	}
	text, err := command.ReadLong(c.File)
	if err != nil {
		return o.Faults(command.Settings{File: c.File}, err)
	}
	result, err := convert.Nginx(command.NameOf(c.File), string(text), c.Server)
	if err != nil {
		return o.DescriptorFaults(err)
	}
	return o.Converted(result.YAML, result.Remarks)
}

// convertEnvoyCommand converts a file of descriptors.
type convertEnvoyCommand struct {
	Actor map[string]string `placeholder:"KEY=ACTOR" help:"Actor of a key of descriptors, such as user=header:X-User. May be repeated. remote_address is ip."`
	File  string            `arg:"" help:"File of envoyproxy/ratelimit. - is standard input."`
}

// Run prints the rules.
func (c *convertEnvoyCommand) Run(o *command.Output) error {
	if err := command.Named(c.File); err != nil {
		return err
	}
	for _, actor := range c.Actor {
		if _, err := command.Vocabulary().ParseActor(actor); err != nil {
			return command.Misuse(err)
		}
	}
	tree, _, err := loadDescriptors(o, []string{c.File}, false)
	if err != nil {
		return err
	}
	result := convert.Envoy(command.NameOf(c.File), tree, c.Actor)
	return o.Converted(result.YAML, result.Remarks)
}
