// llama.vscode's own code, from its sources in FOLDER, with this stand-in for the editor: with_llama_vscode.js FOLDER.
// Completes main.py, and has the agent change in.txt. Settings: settings.json at home, else its own defaults.
"use strict";
const assert = require("assert");
const fs = require("fs");
const Module = require("module");
const os = require("os");
const path = require("path");

const [extension] = process.argv.slice(2);
const work = process.cwd();
const ts = require(require.resolve("typescript", { paths: [extension] }));
const manifest = JSON.parse(fs.readFileSync(path.join(extension, "package.json")));
const settings = JSON.parse(fs.readFileSync(path.join(os.homedir(), "settings.json")));
for (const [name, { default: value }] of Object.entries(manifest.contributes.configuration.properties))
    settings[name] ??= value;

// ---- the editor -------------------------------------------------------------------------------------

// What the stand-in does not have may be called, constructed and read, and does nothing.
const nothing = new Proxy(function () {}, {
    get: (_, name) => {
        if (name === Symbol.toPrimitive) return () => "";
        return name === "then" || typeof name === "symbol" ? undefined : nothing;
    },
    apply: () => nothing,
    construct: () => nothing,
});
const having = (object) => new Proxy(object, { get: (o, name) => (name in o ? o[name] : nothing) });
const record = (...names) =>
    class {
        constructor(...values) {
            names.forEach((name, i) => (this[name] = values[i]));
        }
    };
const file = (fsPath) => ({ fsPath, path: fsPath, scheme: "file", toString: () => `file://${fsPath}` });
const Position = record("line", "character");

class Document {
    constructor(name) {
        this.fileName = path.join(work, name);
        this.uri = file(this.fileName);
        this.lines = fs.readFileSync(this.fileName, "utf8").split("\n");
    }
    get lineCount() {
        return this.lines.length;
    }
    lineAt(line) {
        assert(line < this.lines.length, "Illegal value for `line`");
        return { text: this.lines[line] };
    }
    getText(range) {
        if (!range) return this.lines.join("\n");
        const lines = this.lines.slice(range.start.line, range.end.line + 1);
        lines.push(lines.pop().slice(0, range.end.character));
        return [lines.shift().slice(range.start.character), ...lines].join("\n");
    }
}

class EventEmitter {
    listeners = [];
    event = (listener) => this.listeners.push(listener);
    fire = (event) => this.listeners.forEach((listener) => listener(event));
}

const commands = {}; // by name
const providers = {}; // of completions and of chats
const input = {}; // what the user types, and answers
const shown = []; // messages
const show = async (text, ...more) => {
    shown.push(text);
    return more.find((answer) => answer === input.answer);
};
const memento = () => {
    const values = new Map();
    return { get: (name) => values.get(name), update: async (name, value) => values.set(name, value), keys: () => [] };
};
const vscode = having({
    __esModule: true,
    Position,
    EventEmitter,
    Range: record("start", "end"),
    InlineCompletionItem: record("insertText"),
    InlineCompletionTriggerKind: { Invoke: 0, Automatic: 1 },
    LanguageModelTextPart: record("value"),
    LanguageModelChatMessageRole: { User: 1, Assistant: 2 },
    Uri: { file, parse: file, joinPath: (base, ...more) => file(path.join(base.fsPath, ...more)) },
    window: having({
        activeTextEditor: undefined,
        showInputBox: async () => input.text,
        ...{ showInformationMessage: show, showWarningMessage: show, showErrorMessage: show },
    }),
    commands: {
        registerCommand: (name, command) => (commands[name] = command),
        executeCommand: async () => undefined,
    },
    languages: having({ registerInlineCompletionItemProvider: (_, it) => (providers.completions = it) }),
    lm: having({ tools: [], registerLanguageModelChatProvider: (_, it) => (providers.chats = it) }),
    extensions: { getExtension: () => undefined },
    workspace: having({
        getConfiguration: (section) => having({ get: (name) => settings[`${section}.${name}`] }),
        getWorkspaceFolder: () => ({ uri: file(work) }),
        workspaceFolders: [{ uri: file(work) }],
        findFiles: async () => [],
        fs: { readDirectory: async () => [] },
        openTextDocument: async (uri) => new Document(path.relative(work, uri.fsPath)),
    }),
});
vscode.default = vscode;

const load = Module._load;
Module._load = (name, ...more) => {
    if (name === "vscode") return vscode;
    try {
        return load(name, ...more);
    } catch (error) {
        if (error.code === "MODULE_NOT_FOUND" && !name.startsWith(".") && name !== "axios") return nothing;
        throw error;
    }
};
const compilerOptions = { module: "commonjs", target: "es2020", esModuleInterop: true };
require.extensions[".ts"] = (module, name) =>
    module._compile(ts.transpileModule(fs.readFileSync(name, "utf8"), { compilerOptions }).outputText, name);

// ---- the session ------------------------------------------------------------------------------------

const seconds = (n) => new Promise((resolve) => setTimeout(resolve, 1000 * n));
const token = (isCancellationRequested) => ({ isCancellationRequested, onCancellationRequested: () => nothing });

// The suggestion at the end of a line.
async function suggested(document, line, cancelled = false) {
    const at = new Position(line, document.lines[line].length);
    const how = { triggerKind: vscode.InlineCompletionTriggerKind.Automatic };
    const items = await providers.completions.provideInlineCompletionItems(document, at, how, token(cancelled));
    return items?.[0]?.insertText;
}

async function main() {
    const { activate } = require(path.join(extension, "src/extension.ts"));
    const storage = file(path.join(os.homedir(), "storage"));
    const state = { globalState: memento(), workspaceState: memento() };
    activate(having({ subscriptions: [], extensionUri: file(extension), storageUri: storage, ...state }));
    await seconds(0.5);

    const document = new Document("main.py");
    vscode.window.activeTextEditor = { document, selection: { active: new Position(1, 0) } };
    const text = await suggested(document, 1);
    await seconds(0.5); // what follows is asked for ahead of time
    document.lines[1] = text.slice(0, 3);
    assert.strictEqual(await suggested(document, 1), text.slice(3)); // typed along
    const [first, second] = text.split("\n");
    document.lines.splice(1, 1, first, "");
    assert.strictEqual(await suggested(document, 2), second); // accepted the first line
    document.lines[2] = second;
    assert.strictEqual(await suggested(document, 2, true), undefined); // typed on meanwhile
    fs.writeFileSync(document.fileName, document.getText());

    const [model] = await providers.chats.provideLanguageModelChatInformation({}, token());
    console.log(`llama.vscode ${manifest.version} sees ${model.id}, ${model.maxInputTokens} tokens`);
    const content = [new vscode.LanguageModelTextPart("Hi")];
    const question = { role: vscode.LanguageModelChatMessageRole.User, content };
    const report = (part) => process.stdout.write(part.value);
    await providers.chats.provideLanguageModelChatResponse(model, [question], {}, { report }, token());

    Object.assign(input, { text: "Change the file", answer: "Yes" });
    await commands["extension.askAiWithTools"]();
    const { llamaAgent } = require(path.join(extension, "src/application.ts")).Application.getInstance();
    while (llamaAgent.isAgentInProgress()) await seconds(0.1);
    console.log(llamaAgent.getAgentLogText(), shown);
}

main().then(
    () => process.exit(0),
    (error) => {
        console.log(error, shown);
        process.exit(1);
    },
);
