// SPDX-License-Identifier: MIT

package dianacaddy

import (
	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Caddy knows modules and directives by these calls alone.
func init() {
	caddy.RegisterModule(Handler{})
	httpcaddyfile.RegisterHandlerDirective("diana", func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		m := &Handler{}
		return m, m.UnmarshalCaddyfile(h.Dispenser)
	})
	// In front of all that reads or rewrites the request, because rules are about what the client has sent.
	httpcaddyfile.RegisterDirectiveOrder("diana", httpcaddyfile.Before, "redir")
}

// UnmarshalCaddyfile reads the directive:
//
//	diana [<matcher>] {
//		config <file>
//		actor  <kind> <text>
//		errors
//	}
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if d.NextArg() {
		return d.ArgErr()
	}
	for d.NextBlock(0) {
		switch key := d.Val(); key {
		case "config":
			if h.Config != "" || !d.AllArgs(&h.Config) {
				return d.ArgErr()
			}
		case "actor":
			actor := d.RemainingArgs()
			if len(actor) != 2 || h.Actors[actor[0]] != "" {
				return d.ArgErr()
			}
			if h.Actors == nil {
				h.Actors = map[string]string{}
			}
			h.Actors[actor[0]] = actor[1]
		case "errors":
			if h.Errors = true; d.NextArg() {
				return d.ArgErr()
			}
		default:
			return d.Errf("unknown key %q, expected config, actor or errors", key)
		}
	}
	return nil
}

var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.Validator             = (*Handler)(nil)
	_ caddy.CleanerUpper          = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
	_ caddyfile.Unmarshaler       = (*Handler)(nil)
)
