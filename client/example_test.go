// SPDX-License-Identifier: MIT

package client_test

import (
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/client"
)

func Example() {
	limiter, err := diana.Open("calls.yaml")
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	web := &http.Client{Transport: &client.Transport{Limiter: limiter, MaxWait: 20 * time.Second}}

	response, err := web.Get("https://api.example/v1/orders")
	var refused *client.RefusedError
	if errors.As(err, &refused) {
		fmt.Println("no call was made:", refused)
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
}

// A Transport without rules keeps the limits that servers report. This server allows one call an
// hour, so the Transport does not make the second call.
func ExampleTransport() {
	served := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		served++
		w.Header().Set("RateLimit-Policy", `"hourly";q=1;w=3600`)
		w.Header().Set("RateLimit", `"hourly";r=0;t=3600`)
	}))
	defer server.Close()
	web := &http.Client{Transport: &client.Transport{}}
	for range 2 {
		response, err := web.Get(server.URL)
		var refused *client.RefusedError
		switch {
		case err == nil:
			fmt.Println(response.Status)
			_ = response.Body.Close()
		case errors.As(err, &refused):
			fmt.Println("refused for", refused.RetryAfter.Round(time.Minute))
		default:
			log.Fatal(err)
		}
	}
	fmt.Println("calls that the server has seen:", served)
	// Output:
	// 200 OK
	// refused for 1h0m0s
	// calls that the server has seen: 1
}

// The error has the rules that refuse a call. Never reports that no wait helps.
func ExampleRefusedError_Never() {
	limiter, err := diana.Open("testdata/calls.yaml") // allows no DELETE /v1/orders
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	web := &http.Client{Transport: &client.Transport{Limiter: limiter}}
	call, err := http.NewRequest(http.MethodDelete, "https://api.example/v1/orders", nil)
	if err != nil {
		log.Print(err)
		return
	}
	response, err := web.Do(call)
	var refused *client.RefusedError
	if errors.As(err, &refused) {
		fmt.Println(refused.Rules, refused.Never())
		return
	}
	if err != nil {
		log.Print(err)
		return
	}
	_ = response.Body.Close()
	// Output:
	// [no deletions] true
}
