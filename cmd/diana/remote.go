// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/track"
	"github.com/diana-limiter/diana/source"
)

// remoteTimeout is how long a command waits for the configuration centre.
const remoteTimeout = 10 * time.Second

// remote is a configuration centre, with the local configuration that names it.
type remote struct {
	where  string
	source source.Source
	local  *config.Config
}

// openRemote returns the configuration centre that a configuration names.
func openRemote(local *config.Config) (*remote, error) {
	if local.Remote == nil {
		return nil, errors.New("no configuration centre is named, expected the key remote with a url")
	}
	o, err := local.Remote.Options()
	if err != nil {
		return nil, err
	}
	_, s, err := vocabulary().OpenSource(o)
	if err != nil {
		return nil, fmt.Errorf("remote: %w", err)
	}
	return &remote{local.Remote.Where(), s, local}, nil
}

func (r *remote) close() { _ = r.source.Close() } // no write is pending

// get returns the document of the configuration centre.
func (r *remote) get(ctx context.Context) (source.Document, error) {
	d, err := track.Get(ctx, r.source, remoteTimeout)
	if err != nil {
		return d, fmt.Errorf("%s: %w", r.where, err)
	}
	return d, nil
}

// compose returns the local configuration with the limits of a document of the configuration centre,
// and its number of rules. Errors call the document by name.
func (r *remote) compose(name string, text []byte) (*config.Config, int, error) {
	d, err := vocabulary().ParseRemote(name, text)
	if err != nil {
		return nil, 0, err
	}
	whole := r.local.WithRemote(d)
	set, err := compile(whole)
	if err != nil {
		return nil, 0, err
	}
	return whole, len(set.Rules), nil
}
