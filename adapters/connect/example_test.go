// SPDX-License-Identifier: MIT

package dianaconnect_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/diana-limiter/diana"
	dianaconnect "github.com/diana-limiter/diana/adapters/connect"
	"github.com/diana-limiter/diana/adapters/rpctest"
)

// The examples read the configuration of README.md.
func TestMain(m *testing.M) {
	if err := os.Chdir("testdata"); err != nil {
		log.Fatal(err)
	}
	os.Exit(m.Run())
}

func Example() {
	limiter, err := diana.Open("limits.yaml")
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	limits := connect.WithInterceptors(dianaconnect.Interceptor(limiter))
	mux := http.NewServeMux()
	mux.Handle("/greet.v1.GreetService/Greet", connect.NewUnaryHandler("/greet.v1.GreetService/Greet", greet, limits))

	for _, account := range []string{"ann", "ann", "bob"} {
		err := call(mux, account)
		fmt.Println(account, code(err))
		if coded := (*connect.Error)(nil); errors.As(err, &coded) {
			detail, _ := coded.Details()[0].Value()
			fmt.Println("refused by", detail.(*errdetails.QuotaFailure).Violations[0].Subject)
		}
	}
	// Output:
	// ann ok
	// ann resource_exhausted
	// refused by greetings
	// bob ok
}

// The server of README.md listens on a fixed port, so the tests only compile this example.
func Example_server() {
	mux := http.NewServeMux()

	server := &http.Server{Addr: ":8080", Handler: mux, ReadHeaderTimeout: 5 * time.Second, Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true) // for gRPC without TLS
	log.Fatal(server.ListenAndServe())
}

func ExampleOptions() {
	limiter, err := diana.Open("limits.yaml")
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	limits := connect.WithInterceptors(checkToken(), dianaconnect.Options{
		Actor: func(ctx context.Context, procedure string) (kind, value string) {
			return "account", accountOf(ctx) // of an interceptor that has checked a token
		},
		PerMessage: true,
	}.Interceptor(limiter))
	handler := connect.NewUnaryHandler("/greet.v1.GreetService/Greet", greet, limits)
	fmt.Println(code(call(handler, "ann")))
	fmt.Println(code(call(handler, "bob"))) // the token of both is that of one account
	// Output:
	// ok
	// resource_exhausted
}

func Example_inFront() {
	writer := connect.NewErrorWriter()
	limiter, err := diana.Options{
		Refuse: func(w http.ResponseWriter, r *http.Request, d *diana.Decision) {
			if !writer.IsSupported(r) {
				d.Refuse(w, 0)
				return
			}
			_ = writer.Write(w, r, connect.NewError(connect.CodeResourceExhausted, errors.New("too many calls")))
		},
	}.Open("limits.yaml")
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	handler := limiter.Handler(connect.NewUnaryHandler("/greet.v1.GreetService/Greet", greet))
	for _, protocol := range []connect.ClientOption{connect.WithClientOptions(), connect.WithGRPC(), connect.WithGRPCWeb()} {
		fmt.Println(code(call(handler, "ann", protocol)))
	}
	// Output:
	// ok
	// resource_exhausted
	// resource_exhausted
}

func greet(_ context.Context, req *connect.Request[Text]) (*connect.Response[Text], error) {
	return connect.NewResponse(&Text{Value: "Hello, " + req.Msg.Value + "!"}), nil
}

// checkToken stands for an interceptor that checks a token and puts its account into the context.
func checkToken() connect.Interceptor { return account("ann") }

func accountOf(ctx context.Context) string { return rpctest.AccountOf(ctx) }

// call makes a call of an account to a server with the handler.
func call(handler http.Handler, account string, o ...connect.ClientOption) error {
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	client := connect.NewClient[Text, Text](server.Client(), server.URL+"/greet.v1.GreetService/Greet", o...)
	req := connect.NewRequest(&Text{Value: account})
	req.Header().Set("X-Account-Id", account)
	_, err := client.CallUnary(context.Background(), req)
	return err
}

func code(err error) string {
	if err == nil {
		return "ok"
	}
	return connect.CodeOf(err).String()
}
