// SPDX-License-Identifier: MIT

package adaptertest

import (
	"fmt"
	"io"
	"log"
	"net/http"
)

// Print sends a request of an account, and prints the status and the body of the response. Of a response
// other than 200 it prints the media type in place of the body. It is for the examples of adapters.
func Print(url, account string) {
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		log.Fatal(err)
	}
	r.Header.Set("X-Account-Id", account)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		log.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil {
		log.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		body = []byte(response.Header.Get("Content-Type"))
	}
	fmt.Printf("%d %s\n", response.StatusCode, body)
}
