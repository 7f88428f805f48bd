// SPDX-License-Identifier: MIT

// Package rpctest drives the adapters of RPC frameworks through one table of cases, over real sockets. It
// serves the tests of dianagrpc and dianaconnect, and is not for programs.
package rpctest

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/diana-limiter/diana"
)

// Framework is a framework with its adapter, and a protocol that its client speaks.
type Framework struct {
	// Start serves a Service behind the adapter until the end of the test, and returns a client of it.
	// A panic of the Service must be recovered outside the adapter, and answered with the code Internal.
	Start func(t *testing.T, l *diana.Limiter, s *Service, o Options) Client

	// HeadersSent says that SendHeader of Options has a meaning.
	HeadersSent bool
}

// Options are the options of an adapter, and of the server around it.
type Options struct {
	PerMessage bool
	Actor      func(ctx context.Context, method string) (kind, value string)
	Refuse     bool // the adapter refuses with the code Aborted and the message of Refused

	// Account is put into the context of each call by an interceptor before the adapter, if it is set. A
	// function Actor reads it with AccountOf.
	Account string

	// SendHeader sends the header of each call before the adapter is called.
	SendHeader bool
}

type accountKey struct{}

// WithAccount returns ctx with an account.
func WithAccount(ctx context.Context, account string) context.Context {
	return context.WithValue(ctx, accountKey{}, account)
}

// AccountOf returns the account of WithAccount.
func AccountOf(ctx context.Context) string {
	account, _ := ctx.Value(accountKey{}).(string)
	return account
}

// Client makes a call, and returns when it has ended.
type Client func(ctx context.Context, c Call) Reply

// Call is a call to the Service.
type Call struct {
	Kind     Kind
	Fields   map[string]string // header fields, or metadata
	Messages []string          // a unary call and a server stream have one
}

// Kind is a kind of call. Each is a method of the Service.
type Kind int

// The kinds of calls.
const (
	Unary Kind = iota
	ServerStream
	ClientStream
	Bidi // the client awaits the reply to each message before it sends the next
)

func (k Kind) String() string { return [...]string{"Unary", "ServerStream", "ClientStream", "Bidi"}[k] }

// Method returns the full name of the method.
func (k Kind) Method() string { return "/" + ServiceName + "/" + k.String() }

// ServiceName is the full name of the Service.
const ServiceName = "rpctest.Service"

// Code is the code of an error, with the numbers of google.rpc.Code.
type Code int

// The codes that the table has by name.
const (
	OK                Code = 0
	Canceled          Code = 1
	InvalidArgument   Code = 3
	DeadlineExceeded  Code = 4
	ResourceExhausted Code = 8
	Aborted           Code = 10
	Internal          Code = 13
)

// Error is the error of a Service. A server answers it as an error with this code.
func (c Code) Error() string { return "a code of the test" }

// Refused is the message of a refusal that Options.Refuse asks for.
const Refused = "refused by the program"

// Reply is what a client has got.
type Reply struct {
	Code            Code
	Text            string // of the error
	Messages        []string
	Header, Trailer http.Header
	Violations      []string      // the subjects of QuotaFailure
	Retry           time.Duration // of RetryInfo; 0: there is none
}

// field returns a field of the header or the trailer.
func (r *Reply) field(name string) string {
	if value := r.Trailer.Get(name); value != "" {
		return value
	}
	return r.Header.Get(name)
}
