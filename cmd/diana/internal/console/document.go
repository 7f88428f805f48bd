// SPDX-License-Identifier: MIT

package console

import (
	_ "embed"
	"net/http"
)

const documentPath = "/api/v1/openapi.json"

//go:embed openapi.json
var document []byte

// showDocument answers with the OpenAPI document of the API.
func showDocument(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(document)
}
