// SPDX-License-Identifier: MIT

package calls

import (
	"context"
	"net/http"
	"sync"

	"github.com/diana-limiter/diana"
)

// Messages charges a stream for each message that it receives.
type Messages struct {
	Context context.Context // ends with the first message that is refused, and when Serve returns

	// Take decides about a message. Answer gets what Take returns, and returns the error of the message. Finish is
	// called when the handler returns, and Settle then gets the error of one that has not panicked.
	Take   func(context.Context) (diana.Decision, error)
	Answer func(context.Context, *diana.Decision, error) error
	Finish func()
	Settle func(*diana.Decision, error)

	cancel context.CancelCauseFunc
	mu     sync.Mutex     // a message can still arrive when the handler returns
	latest diana.Decision // about the latest message
	err    error          // of the message that has ended the stream
}

// Begin begins a stream with that context.
func (m *Messages) Begin(ctx context.Context) { m.Context, m.cancel = context.WithCancelCause(ctx) }

// Err returns why the stream has ended, or nil.
func (m *Messages) Err() error {
	if m.Context.Err() != nil {
		return context.Cause(m.Context)
	}
	return nil
}

// Charge charges a message. It waits if the limits say so. An error ends the stream.
func (m *Messages) Charge() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.Err(); err != nil {
		return err
	}
	m.latest.SetStatus(http.StatusOK) // because the stream continues
	m.latest.Done()
	d, err := m.Take(m.Context)
	m.latest = d
	if err = m.Answer(m.Context, &m.latest, err); err != nil && m.Context.Err() == nil {
		m.err = err
		m.cancel(err)
	}
	return err
}

// Serve calls the handler of the stream, and returns the error of the stream. A message that still waits when the
// handler returns gets an error.
func (m *Messages) Serve(handler func() error) (err error) {
	returned := false
	defer func() {
		m.cancel(context.Canceled)
		m.mu.Lock()
		defer m.mu.Unlock()
		defer m.latest.Done()
		if m.Finish(); m.err != nil {
			err = m.err
		} else if returned {
			m.Settle(&m.latest, err)
		}
	}()
	err = handler()
	returned = true
	return err
}
