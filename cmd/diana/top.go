// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/diana-limiter/diana/cmd/diana/internal/admin"
	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/cmd/diana/internal/live"
)

// topCommand shows what a gateway decides now.
type topCommand struct {
	Admin      admin.Address `default:"http://127.0.0.1:9090" placeholder:"URL" help:"Admin listener of the gateway (${default})."`
	AdminToken admin.Token   `placeholder:"file:PATH|env:NAME" help:"The secret of the admin listener, see diana serve."`
	Once       bool          `help:"Print the table once. This is the default if the output is no terminal."`
}

// Help is the end of what --help prints.
func (topCommand) Help() string {
	return `The table has the most refused actors, and the rules that refuse most, and changes each second. Ctrl-C ends it. A gateway on another machine needs the token.`
}

// Run prints the table once, or each second until a signal or the end of ctx.
func (c *topCommand) Run(ctx context.Context, o *command.Output) error {
	token := ""
	if c.AdminToken.IsSet() {
		var err error
		if token, err = c.AdminToken.Value(); err != nil {
			return err
		}
	}
	ask := func(ctx context.Context, rules int) (*live.Snapshot, error) { return c.ask(ctx, token, rules) }
	terminal, _ := o.Out.(*os.File)
	if c.Once || terminal == nil || !term.IsTerminal(int(terminal.Fd())) {
		s, err := ask(ctx, 20)
		if err != nil {
			return err
		}
		o.Printf("%s", topTable(s, 0))
		return nil
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	screen := topScreen{output: o, ask: ask, size: func() (width, height int) {
		width, height, err := term.GetSize(int(terminal.Fd()))
		if err != nil {
			return 80, 24
		}
		return width, height
	}}
	return screen.follow(ctx, tick.C)
}

// ask asks the gateway for a snapshot with some of its rules.
func (c *topCommand) ask(ctx context.Context, token string, rules int) (*live.Snapshot, error) {
	to := c.Admin.URL.JoinPath("api/v1/live")
	to.RawQuery = fmt.Sprintf("rules=%d", rules)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, to.String(), nil)
	if err != nil {
		return nil, err
	}
	answer, err := admin.Ask(r, token, mostSnapshot)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Admin.URL.Redacted(), err)
	}
	if answer.Code != http.StatusOK {
		err := fmt.Errorf("%s: %s, expected the admin listener of diana serve, and --admin-token if it needs one", c.Admin.URL.Redacted(), answer.Status)
		if answer.Code < http.StatusInternalServerError && answer.Code != http.StatusTooManyRequests {
			err = lastAnswer{err}
		}
		return nil, err
	}
	s := &live.Snapshot{}
	if err := json.Unmarshal(answer.Body, s); err != nil {
		return nil, lastAnswer{fmt.Errorf("%s: expected the admin listener of diana serve, which prints its address when it starts", c.Admin.URL.Redacted())}
	}
	return s, nil
}

// mostSnapshot is the longest snapshot that is read, in bytes.
const mostSnapshot = 16 << 20
