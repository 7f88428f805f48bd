// SPDX-License-Identifier: MIT

package console

import (
	_ "embed"
	"encoding/json"
	"net/http"

	"golang.org/x/text/language"
)

//go:embed page/words.json
var wordsFile []byte

// words are the texts of the page by language and name. The page's scripts use the same file.
var words = func() (all map[string]map[string]string) {
	if err := json.Unmarshal(wordsFile, &all); err != nil {
		panic(err) // the file is embedded, and a test reads it
	}
	return all
}()

var (
	languages = []string{"en", "zh"} // the first is the default
	matcher   = language.NewMatcher([]language.Tag{language.English, language.Chinese})
)

// languageOf returns the language for a request: that of the parameter lang, or the best of Accept-Language.
func languageOf(r *http.Request) string {
	_, i := language.MatchStrings(matcher, r.URL.Query().Get("lang"), r.Header.Get("Accept-Language"))
	return languages[i]
}
