// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/source"
)

// centreTimeout is how long a command waits for the configuration centre.
const centreTimeout = 10 * time.Second

// centre is a configuration centre that a command asks.
type centre struct {
	where  string
	source source.Source
	local  *config.Config
}

// openCentre returns the centre that a configuration names.
func openCentre(local *config.Config) (*centre, error) {
	if local.Remote == nil {
		return nil, errors.New("no configuration centre is named, expected remote with a url")
	}
	o, err := local.Remote.Options()
	if err != nil {
		return nil, err
	}
	_, s, err := source.Open(vocabulary().Sources, o)
	if err != nil {
		return nil, fmt.Errorf("remote: %w", err)
	}
	return &centre{local.Remote.Where(), s, local}, nil
}

func (c *centre) close() { _ = c.source.Close() } // nothing is lost

// get returns what the centre holds.
func (c *centre) get(ctx context.Context) (source.Document, error) {
	d, err := source.Get(ctx, c.source, centreTimeout)
	if err != nil {
		return d, fmt.Errorf("%s: %w", c.where, err)
	}
	return d, nil
}

// put replaces what the centre holds.
func (c *centre) put(ctx context.Context, text []byte) error {
	ctx, cancel := context.WithTimeout(ctx, centreTimeout)
	defer cancel()
	if err := c.source.Put(ctx, text); err != nil {
		return fmt.Errorf("%s: %w", c.where, err)
	}
	return nil
}

// judge returns the configuration that a document of the centre, named so, and the local
// file make together, and how many rules it has.
func (c *centre) judge(name string, text []byte) (*config.Config, int, error) {
	d, err := vocabulary().ParseRemote(name, text)
	if err != nil {
		return nil, 0, err
	}
	whole := config.Compose(c.local, d)
	set, err := compile(whole)
	if err != nil {
		return nil, 0, err
	}
	return whole, len(set.Rules), nil
}
