// SPDX-License-Identifier: MIT

package client_test

import (
	"errors"
	"fmt"
	"log"
	"net/http"
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

	answer, err := web.Get("https://api.example/v1/orders")
	var refused *client.RefusedError
	if errors.As(err, &refused) {
		fmt.Println("not asked:", refused)
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
}
