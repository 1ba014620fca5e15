(* The small-memory regime of the general bound (new ground beyond theorem (e)).

   If every score is formed by summing its d products in a partial sum, in any order and
   with recomputation, as in GeneralBound.v, then for M <= d^2

     (nq nk d)^2 <= 5 M (traffic + M)^2

   that is, traffic >= nq nk d / sqrt(5 M) - M: the second term of Saha and Ye's
   Theta(min(N^2 d^2 / M, N^2 d / sqrt(M))), with a constant.

   Hypotheses: 0 < d, 0 < M <= d^2; the execution is valid, and every score is read once
   complete (task Form i j).

   Proof: cut the execution into phases of M loads and stores.  The products of a phase
   that are not lost project onto at most 2M words of q and k, and onto partial sums
   that are among the 2M words seen from outside, or stored in the phase, or still in
   fast memory at its end, or formed in it from whole rows (at most 2M of these, by
   GeneralBound.v).  Loomis and Whitney: |T|^2 <= |A| |B| |C|.
   Source: Hong and Kung 1981; Saha and Ye 2024 (arXiv 2402.07443), Theorem 3.1; the
   constant is derived here. *)
From Coq Require Import Arith Lia List.
From iosim Require Import Lists Machine GeneralBound.
Import ListNotations.

(* Loomis and Whitney, discrete *)

Lemma cauchy_step a b n p : b * b <= n * p -> (a + b) * (a + b) <= S n * (a * a + p).
Proof.
  intros H. destruct n as [| n].
  - assert (b = 0) by (destruct b; lia). subst. lia.
  - assert (K : 2 * a * b <= S n * (a * a) + p).
    { apply (Nat.mul_le_mono_pos_l _ _ (S n)); [ lia | ].
      set (m := S n) in *. clearbody m.
      assert (2 * (m * a) * b <= (m * a) * (m * a) + b * b).
      { set (u := m * a). clearbody u. destruct (Nat.le_ge_cases u b) as [L | L];
          apply Nat.le_exists_sub in L as (x & -> & _); lia. }
      lia. }
    lia.
Qed.

Section LoomisWhitney.
Context {T C : Type} (C_dec : forall x y : C, {x = y} + {x <> y}) (h : T -> C).
Definition at_c (c : C) (t : T) : bool := if C_dec (h t) c then true else false.

Lemma fibre_pairs cs : forall ts, NoDup ts -> (forall t, In t ts -> In (h t) cs) ->
  exists ps : list (T * T), NoDup ps /\ length ts * length ts <= length cs * length ps /\
    forall t t', In (t, t') ps -> In t ts /\ In t' ts /\ h t = h t'.
Proof.
  induction cs as [| c cs IH]; intros ts N H.
  - exists []. destruct ts as [| t ts]; [ | destruct (H t); now left ].
    split; [ constructor | split; [ apply le_n | intros t t' [] ] ].
  - set (t1 := filter (at_c c) ts). set (t2 := filter (fun t => negb (at_c c t)) ts).
    destruct (IH t2) as (ps & Np & L & P).
    { now apply NoDup_filter. }
    { intros t Ht. apply filter_In in Ht as [Ht E]. unfold at_c in E.
      destruct (C_dec (h t) c) as [-> | N']; [ discriminate | ].
      destruct (H t Ht); [ congruence | assumption ]. }
    assert (E1 : forall t, In t t1 -> In t ts /\ h t = c).
    { intros t Ht. apply filter_In in Ht as [Ht E]. unfold at_c in E.
      destruct (C_dec (h t) c); [ auto | discriminate ]. }
    exists (list_prod t1 t1 ++ ps). split; [ | split ].
    + apply NoDup_app; [ | exact Np | ].
      * apply NoDup_list_prod; now apply NoDup_filter.
      * intros [t t'] H1 H2. apply in_prod_iff in H1 as [H1 _]. apply E1 in H1 as [_ E].
        apply P in H2 as [H2 _]. apply filter_In in H2 as [_ H2]. unfold at_c in H2.
        destruct (C_dec (h t) c); [ discriminate | contradiction ].
    + rewrite app_length, prod_length, (filter_split (at_c c) ts). fold t1 t2.
      rewrite (Nat.add_comm (length t2)). cbn [length]. now apply cauchy_step.
    + intros t t' Hp. apply in_app_iff in Hp as [Hp | Hp].
      * apply in_prod_iff in Hp as [H1 H2]. apply E1 in H1 as [? ?], H2 as [? ?].
        repeat split; congruence || assumption.
      * apply P in Hp as (H1 & H2 & E). apply filter_In in H1 as [H1 _], H2 as [H2 _]. auto.
Qed.
End LoomisWhitney.

Definition triple := (nat * nat * nat)%type.
Definition triple_dec (t u : triple) : {t = u} + {t <> u}.
Proof. repeat decide equality. Defined.
Definition ij (t : triple) : nat * nat := fst t.
Definition ic (t : triple) : nat * nat := (fst (fst t), snd t).
Definition jc (t : triple) : nat * nat := (snd (fst t), snd t).

Lemma loomis_whitney (ts : list triple) (a b c : list (nat * nat)) :
  NoDup ts ->
  (forall t, In t ts -> In (ic t) a /\ In (jc t) b /\ In (ij t) c) ->
  length ts * length ts <= length a * length b * length c.
Proof.
  intros N H. destruct (fibre_pairs pair_dec ij c ts N) as (ps & Np & L & P).
  { intros t Ht. now apply H. }
  assert (K : length ps <= length a * length b).
  { rewrite <- prod_length, <- (map_length (fun tt => (ic (fst tt), jc (snd tt))) ps).
    apply NoDup_incl_length.
    - clear L. induction Np as [| [t t'] ps Hn _ IH]; cbn; constructor.
      + intros Hin. apply in_map_iff in Hin as ([u u'] & E & Hu).
        destruct (P t t') as (_ & _ & E1); [ now left | ].
        destruct (P u u') as (_ & _ & E2); [ now right | ].
        destruct t as [[i j] x], t' as [[i' j'] x'], u as [[k l] y], u' as [[k' l'] y'].
        unfold ij, ic, jc in *. cbn in *. apply Hn.
        injection E1 as <- <-. injection E2 as <- <-. injection E as <- <- <- <-. exact Hu.
      + apply IH. intros. apply P. now right.
    - intros [p q] Hin. apply in_map_iff in Hin as ([t t'] & E & Hp). injection E as <- <-.
      destruct (P t t' Hp) as (H1 & H2 & _). apply in_prod; now apply H. }
  apply (Nat.mul_le_mono_l _ _ (length c)) in K. lia.
Qed.

Section Phases.
Variables d M : nat.
Notation X := (scores d).
Hypothesis d_positive : 0 < d.
Hypothesis M_positive : 0 < M.
Hypothesis M_small : M <= d * d.

(* Looking ahead: w is stored, or its score read, before it is dropped or made anew. *)
Fixpoint kept (w : gword) (es : list (event X)) : bool :=
  match es with
  | [] => false
  | (Store x | Add x) :: es => if gword_dec x w then true else kept w es
  | (New x | Drop x) :: es => if gword_dec x w then false else kept w es
  | Do (Form i j) :: es => if gword_dec (Wp i j) w then true else kept w es
  | (Load _ | Do (Mac _ _ _)) :: es => kept w es
  end.

(* lia, knowing that the words of the model are gword. *)
Ltac plia := change (word (scores d)) with gword in *; cbn [length] in *; lia.

Definition most := Nat.sqrt (5 * (M * M * M)).

(* k phases are over and formed the products old; the present one has made r loads and
   stores, has seen the words in seen from outside, made those in fresh, stored those
   in stored, read the scores in formed, and formed the products now. *)
Record phase (s : state X) (es : list (event X)) (k r spent : nat)
    (seen fresh stored : list gword) (formed : list (nat * nat)) (now old : list triple) : Prop := {
  p_count : r <= M /\ k * M + r <= spent;
  p_seen : NoDup seen /\ length seen + length stored <= M + r;
  p_fast : forall w, In w (fast s) -> input (m := X) w = true -> In w seen;
  p_part : forall i j, In (Wp i j) (fast s) -> kept (Wp i j) es = true ->
    In (Wp i j) seen \/ In (Wp i j) fresh;
  p_size : length (fast s) <= M /\ NoDup (fast s);
  p_empty : forall w, ~ In w (fast s) -> content s w = [];
  p_content : forall i j c, In (Mac i j c) (content s (Wp i j)) ->
    In (Wp i j) seen \/ In (Wq i c) seen /\ In (Wk j c) seen;
  p_fresh : forall w, In w fresh -> In w seen \/ In w stored \/
    (exists i j, w = Wp i j /\ In (i, j) formed) \/ (In w (fast s) /\ kept w es = true);
  p_formed : NoDup formed /\ forall p, In p formed ->
    forall c, c < d -> In (Wq (fst p) c) seen /\ In (Wk (snd p) c) seen;
  p_now : NoDup now /\ forall i j c, In (i, j, c) now ->
    In (Wq i c) seen /\ In (Wk j c) seen /\ (In (Wp i j) seen \/ In (Wp i j) fresh);
  p_old : length old <= k * most;
  p_live : forall i j c,
    (In (Mac i j c) (content s (Wp i j)) /\ kept (Wp i j) es = true)
    \/ In (Mac i j c) (saved s (Wp i j)) -> In (i, j, c) (now ++ old)
}.

Definition qw (w : gword) : list (nat * nat) := match w with Wq i c => [(i, c)] | _ => [] end.
Definition kw (w : gword) : list (nat * nat) := match w with Wk j c => [(j, c)] | _ => [] end.
Definition pw (w : gword) : list (nat * nat) := match w with Wp i j => [(i, j)] | _ => [] end.

Lemma parts_length l :
  length (flat_map qw l) + length (flat_map kw l) + length (flat_map pw l) <= length l.
Proof. induction l as [| [] l IH]; cbn; lia. Qed.

Lemma phase_products s es k r spent seen fresh stored formed now old :
  phase s es k r spent seen fresh stored formed now old -> length now <= most.
Proof.
  intros [[C1 C2] [S1 S2] _ _ [Z1 Z2] _ _ Fr [F1 F2] [N1 N2] _ _].
  assert (Lf : length formed <= 2 * M).
  { assert (P : d * d * length formed <= M * worst d M).
    { apply (phase_bound d M seen formed); trivial; [ lia | ].
      intros p Hp. right. now apply F2. }
    unfold worst in P. rewrite Nat.max_r in P by lia.
    apply (Nat.mul_le_mono_pos_l _ _ (d * d)); [ nia | lia ]. }
  set (cs := flat_map pw seen ++ flat_map pw stored ++ formed ++ flat_map pw (fast s)).
  assert (H : length now * length now
    <= length (flat_map qw seen) * length (flat_map kw seen) * length cs).
  { apply loomis_whitney; [ exact N1 | ]. intros [[i j] c] Ht. unfold ic, jc, ij. cbn [fst snd].
    destruct (N2 i j c Ht) as (Hq & Hk & Hp). split; [ | split ].
    - apply in_flat_map. exists (Wq i c). split; [ exact Hq | now left ].
    - apply in_flat_map. exists (Wk j c). split; [ exact Hk | now left ].
    - assert (Q : forall l, In (Wp i j) l -> In (i, j) (flat_map pw l)).
      { intros l Hl. apply in_flat_map. exists (Wp i j). split; [ exact Hl | now left ]. }
      unfold cs. rewrite !in_app_iff. destruct Hp as [Hp | Hp]; [ left; auto | ].
      destruct (Fr _ Hp) as [? | [? | [(i' & j' & E & ?) | [? _]]]]; auto 6.
      injection E as <- <-. auto. }
  assert (Lc : length cs <= length (flat_map pw seen) + length stored + 2 * M + M).
  { unfold cs. rewrite !app_length. pose proof (parts_length stored).
    pose proof (parts_length (fast s)). plia. }
  pose proof (parts_length seen) as Ls.
  set (a := length (flat_map qw seen)) in *. set (b := length (flat_map kw seen)) in *.
  assert (AB : a * b <= M * M).
  { assert (4 * (a * b) <= (a + b) * (a + b)).
    { destruct (Nat.le_ge_cases a b) as [L | L];
        apply Nat.le_exists_sub in L as (x & -> & _); lia. }
    assert ((a + b) * (a + b) <= (2 * M) * (2 * M)) by (apply Nat.mul_le_mono; lia). lia. }
  assert (length now * length now <= M * M * (5 * M)).
  { apply Nat.le_trans with (1 := H). apply Nat.mul_le_mono; [ exact AB | lia ]. }
  unfold most. apply Nat.sqrt_le_square. lia.
Qed.

Lemma phase_restart s es k spent seen fresh stored formed now old :
  phase s es k M spent seen fresh stored formed now old ->
  phase s es (S k) 0 spent (fast s) [] [] [] [] (now ++ old).
Proof.
  intros P. pose proof (phase_products _ _ _ _ _ _ _ _ _ _ _ P) as Hn.
  destruct P as [[C1 C2] [S1 S2] F Pa [Z1 Z2] Em Co Fr [F1 F2] [N1 N2] O Li]. split; auto.
  - cbn. lia.
  - split; [ exact Z2 | cbn; plia ].
  - intros i j c H. left. destruct (in_dec gword_dec (Wp i j) (fast s)) as [Hw | Hw]; [ exact Hw | ].
    rewrite (Em _ Hw) in H. contradiction.
  - split; [ constructor | intros p [] ].
  - split; [ constructor | intros i j c [] ].
  - rewrite app_length. change (S k * most) with (most + k * most). lia.
Qed.

(* Room for one more load or store. *)
Lemma phase_room s es k r spent seen fresh stored formed now old :
  phase s es k r spent seen fresh stored formed now old ->
  exists k' r' seen' fresh' stored' formed' now' old', r' < M /\
    phase s es k' r' spent seen' fresh' stored' formed' now' old' /\ now' ++ old' = now ++ old.
Proof.
  intros P. destruct (Nat.lt_ge_cases r M) as [Hr | Hr].
  - exists k, r, seen, fresh, stored, formed, now, old. auto.
  - assert (r = M) as -> by (pose proof (proj1 (p_count _ _ _ _ _ _ _ _ _ _ _ P)); lia).
    exists (S k), 0, (fast s), [], [], [], [], (now ++ old).
    split; [ exact M_positive | split; [ | reflexivity ] ].
    now apply (phase_restart s es k spent seen fresh stored formed).
Qed.

Lemma phase_step s e es k r spent seen fresh stored formed now old :
  phase s (e :: es) k r spent seen fresh stored formed now old ->
  allowed s e -> length (fast (step s e)) <= M ->
  exists k' r' seen' fresh' stored' formed' now' old',
    phase (step s e) es k' r' (spent + (cost_load e + cost_store e))
      seen' fresh' stored' formed' now' old' /\
    incl (now ++ old) (now' ++ old') /\
    (forall i j, e = @Do X (Form i j) -> forall c, c < d -> In (i, j, c) (now' ++ old')).
Proof.
  intros P0 He HM. destruct e as [w | w | w | w | w | t]; cbn [cost_load cost_store].
  - (* Load *)
    destruct (phase_room _ _ _ _ _ _ _ _ _ _ _ P0)
      as (k1 & r1 & se & fr & st & fo & no & ol & Hr & P & <-). clear P0.
    destruct P as [[C1 C2] [S1 S2] F Pa [Z1 Z2] Em Co Fr [F1 F2] [N1 N2] O Li].
    exists k1, (S r1), (enter (X := X) w se), fr, st, fo, no, ol.
    split; [ | split; [ apply incl_refl | discriminate ] ].
    assert (I : incl se (enter (X := X) w se)) by (intros x Hx; apply (enter_In (X := X)); auto).
    destruct s as [f ct m]; cbn [fast content saved step kept] in *.
    split; cbn [fast content saved]; trivial.
    + split; lia.
    + unfold enter. destruct (in_dec _ w se); split; trivial; try (now constructor); cbn in *; lia.
    + intros x Hx Hi. apply (enter_In (X := X)). apply (enter_In (X := X)) in Hx as [<- | Hx]; auto.
    + intros i j Hx Hk. apply (enter_In (X := X)) in Hx as [<- | Hx].
      * left. apply (enter_In (X := X)). now left.
      * destruct (Pa i j Hx Hk); auto.
    + split; [ exact HM | ]. unfold enter. destruct (in_dec _ w f); [ exact Z2 | now constructor ].
    + intros x Hx. rewrite (enter_In (X := X)) in Hx. rewrite (upd_other (X := X)) by tauto.
      apply Em. tauto.
    + intros i j c Hc. destruct (gword_dec w (Wp i j)) as [-> | N].
      * left. apply (enter_In (X := X)). now left.
      * rewrite (upd_other (X := X)) in Hc by exact N. destruct (Co i j c Hc) as [? | [? ?]]; auto.
    + intros x Hx. destruct (Fr x Hx) as [? | [? | [? | [? ?]]]]; auto.
      right; right; right. split; [ apply (enter_In (X := X)); now right | assumption ].
    + split; [ exact F1 | ]. intros p Hp c Hc. destruct (F2 p Hp c Hc). auto.
    + split; [ exact N1 | ]. intros i j c Hc. destruct (N2 i j c Hc) as (? & ? & [? | ?]); auto.
    + intros i j c Hc. apply Li. destruct (gword_dec w (Wp i j)) as [-> | N].
      * rewrite (upd_same (X := X)), in_app_iff in Hc. tauto.
      * rewrite (upd_other (X := X)) in Hc by exact N. exact Hc.
  - (* New *)
    destruct P0 as [[C1 C2] [S1 S2] F Pa [Z1 Z2] Em Co Fr [F1 F2] [N1 N2] O Li].
    destruct He as [Hw Hi].
    exists k, r, seen, (if kept w es then w :: fresh else fresh), stored, formed, now, old.
    split; [ | split; [ apply incl_refl | discriminate ] ].
    assert (Hk : forall x, x <> w -> kept x (@New X w :: es) = kept x es).
    { intros x Hx. cbn. destruct (gword_dec w x); congruence. }
    assert (If : incl fresh (if kept w es then w :: fresh else fresh)).
    { destruct (kept w es); [ apply incl_tl | ]; apply incl_refl. }
    destruct s as [f ct m]; cbn [fast content saved step] in *.
    split; cbn [fast content saved]; trivial.
    + split; lia.
    + auto.
    + intros x [<- | Hx] Hx'; [ congruence | auto ].
    + intros i j [E | Hx] Hx'.
      * right. rewrite E, Hx'. now left.
      * rewrite <- (Hk (Wp i j)) in Hx' by (intros E; rewrite E in *; contradiction).
        destruct (Pa i j Hx Hx'); auto.
    + split; [ exact HM | now constructor ].
    + intros x Hx. cbn in Hx. rewrite (upd_other (X := X)) by tauto. apply Em. tauto.
    + intros i j c Hc. destruct (gword_dec w (Wp i j)) as [-> | N].
      * rewrite (upd_same (X := X)) in Hc. contradiction.
      * rewrite (upd_other (X := X)) in Hc by exact N. auto.
    + intros x Hx.
      assert (Hx' : In x fresh \/ (x = w /\ kept w es = true)).
      { destruct (kept w es); [ destruct Hx as [<- | Hx]; auto | auto ]. }
      destruct Hx' as [Hx' | [-> Hx']]; [ | right; right; right; split; [ now left | exact Hx' ] ].
      destruct (Fr x Hx') as [? | [? | [? | [Hf Hxk]]]]; auto.
      right; right; right. split; [ now right | ].
      rewrite Hk in Hxk; [ exact Hxk | ]. intros ->. contradiction.
    + split; [ exact F1 | exact F2 ].
    + split; [ exact N1 | ]. intros i j c Hc. destruct (N2 i j c Hc) as (? & ? & [? | ?]); auto.
    + intros i j c Hc. apply Li. destruct (gword_dec w (Wp i j)) as [-> | N].
      * rewrite (upd_same (X := X)) in Hc. cbn in Hc. tauto.
      * rewrite (upd_other (X := X)) in Hc by exact N. rewrite Hk by congruence. exact Hc.
  - (* Store *)
    destruct (phase_room _ _ _ _ _ _ _ _ _ _ _ P0)
      as (k1 & r1 & se & fr & st & fo & no & ol & Hr & P & <-). clear P0.
    destruct P as [[C1 C2] [S1 S2] F Pa [Z1 Z2] Em Co Fr [F1 F2] [N1 N2] O Li].
    exists k1, (S r1), se, fr, (w :: st), fo, no, ol.
    split; [ | split; [ apply incl_refl | discriminate ] ].
    assert (Hk : forall x, kept x es = true -> kept x (@Store X w :: es) = true).
    { intros x Hx. cbn. destruct (gword_dec w x); auto. }
    destruct s as [f ct m]; cbn [fast content saved step] in *.
    split; cbn [fast content saved]; trivial.
    + split; lia.
    + split; [ exact S1 | plia ].
    + intros i j Hx Hx'. apply Pa; auto.
    + split; [ exact HM | exact Z2 ].
    + intros x Hx. destruct (Fr x Hx) as [? | [? | [? | [Hf Hxk]]]]; auto.
      * right; left; now right.
      * cbn in Hxk. destruct (gword_dec w x) as [-> | N]; [ right; left; now left | auto ].
    + split; [ exact F1 | exact F2 ].
    + split; [ exact N1 | exact N2 ].
    + intros i j c [[Hc Hx] | Hc]; apply Li; [ left; split; auto | ].
      destruct (gword_dec w (Wp i j)) as [-> | N].
      * rewrite (upd_same (X := X)) in Hc. cbn [kept]. destruct (gword_dec (Wp i j) (Wp i j)); tauto.
      * rewrite (upd_other (X := X)) in Hc by exact N. now right.
  - (* Add *)
    destruct (phase_room _ _ _ _ _ _ _ _ _ _ _ P0)
      as (k1 & r1 & se & fr & st & fo & no & ol & Hr & P & <-). clear P0.
    destruct P as [[C1 C2] [S1 S2] F Pa [Z1 Z2] Em Co Fr [F1 F2] [N1 N2] O Li].
    exists k1, (S r1), se, fr, (w :: st), fo, no, ol.
    split; [ | split; [ apply incl_refl | discriminate ] ].
    assert (Hk : forall x, kept x es = true -> kept x (@Add X w :: es) = true).
    { intros x Hx. cbn. destruct (gword_dec w x); auto. }
    destruct s as [f ct m]; cbn [fast content saved step] in *.
    split; cbn [fast content saved]; trivial.
    + split; lia.
    + split; [ exact S1 | plia ].
    + intros i j Hx Hx'. apply Pa; auto.
    + split; [ exact HM | exact Z2 ].
    + intros x Hx. destruct (Fr x Hx) as [? | [? | [? | [Hf Hxk]]]]; auto.
      * right; left; now right.
      * cbn in Hxk. destruct (gword_dec w x) as [-> | N]; [ right; left; now left | auto ].
    + split; [ exact F1 | exact F2 ].
    + split; [ exact N1 | exact N2 ].
    + intros i j c [[Hc Hx] | Hc]; apply Li; [ left; split; auto | ].
      destruct (gword_dec w (Wp i j)) as [-> | N].
      * rewrite (upd_same (X := X)), in_app_iff in Hc. cbn [kept]. destruct (gword_dec (Wp i j) (Wp i j)); tauto.
      * rewrite (upd_other (X := X)) in Hc by exact N. now right.
  - (* Drop *)
    destruct P0 as [[C1 C2] [S1 S2] F Pa [Z1 Z2] Em Co Fr [F1 F2] [N1 N2] O Li].
    exists k, r, seen, fresh, stored, formed, now, old.
    split; [ | split; [ apply incl_refl | discriminate ] ].
    assert (Hk : forall x, x <> w -> kept x (@Drop X w :: es) = kept x es).
    { intros x Hx. cbn. destruct (gword_dec w x); congruence. }
    destruct s as [f ct m]; cbn [fast content saved step] in *.
    split; cbn [fast content saved]; trivial.
    + split; lia.
    + auto.
    + intros x Hx Hi. apply in_remove in Hx as [Hx _]. auto.
    + intros i j Hx Hx'. apply in_remove in Hx as [Hx Hxw]. apply Pa; [ exact Hx | now rewrite Hk ].
    + split; [ exact HM | now apply remove_NoDup ].
    + intros x Hx. unfold upd. destruct (word_dec X w x) as [E | E]; [ reflexivity | ].
      apply Em. intros Hf. apply Hx, in_in_remove; auto.
    + intros i j c Hc. destruct (gword_dec w (Wp i j)) as [-> | N].
      * rewrite (upd_same (X := X)) in Hc. contradiction.
      * rewrite (upd_other (X := X)) in Hc by exact N. auto.
    + intros x Hx. destruct (Fr x Hx) as [? | [? | [? | [Hf Hxk]]]]; auto.
      right; right; right. assert (Hxw : x <> w).
      { intros ->. cbn in Hxk. destruct (gword_dec w w); congruence. }
      split; [ apply in_in_remove; auto | now rewrite <- Hk ].
    + split; [ exact F1 | exact F2 ].
    + split; [ exact N1 | exact N2 ].
    + intros i j c Hc. apply Li. destruct (gword_dec w (Wp i j)) as [-> | N].
      * rewrite (upd_same (X := X)) in Hc. cbn in Hc. tauto.
      * rewrite (upd_other (X := X)) in Hc by exact N. rewrite Hk by congruence. exact Hc.
  - (* Do *)
    destruct He as [Hn Hr]. rewrite Nat.add_0_r. destruct t as [i j x | i j].
    + (* a product *)
      destruct P0 as [[C1 C2] [S1 S2] F Pa [Z1 Z2] Em Co Fr [F1 F2] [N1 N2] O Li].
      assert (Hq : In (Wq i x) (fast s)) by (apply Hn; cbn; auto).
      assert (Hkx : In (Wk j x) (fast s)) by (apply Hn; cbn; auto).
      assert (Hp : In (Wp i j) (fast s)) by (apply Hn; cbn; auto).
      assert (Ec : forall y t, In t (content (step s (@Do X (Mac i j x))) y) ->
        In t (content s y) \/ (t = Mac i j x /\ y = Wp i j)).
      { intros y t. destruct s as [f ct m]. cbn [step content]. unfold absorb.
        destruct (in_dec (word_dec X) y (outs (m := X) (Mac i j x))) as [Ho | Ho]; [ | auto ].
        cbn in Ho. destruct Ho as [<- | []]. intros [<- | Ht]; auto. }
      assert (Ef : fast (step s (@Do X (Mac i j x))) = fast s) by now destruct s.
      assert (Em' : saved (step s (@Do X (Mac i j x))) = saved s) by now destruct s.
      (* the product counts when its partial sum is kept and it is not there yet *)
      set (counts := if kept (Wp i j) es then
                       if in_dec triple_dec (i, j, x) (now ++ old) then false else true else false).
      exists k, r, seen, fresh, stored, formed, (if counts then (i, j, x) :: now else now), old.
      assert (In' : incl (now ++ old) ((if counts then (i, j, x) :: now else now) ++ old)).
      { destruct counts; [ apply incl_tl | ]; apply incl_refl. }
      split; [ | split; [ exact In' | discriminate ] ].
      split; rewrite ?Ef, ?Em'; trivial.
      * split; lia.
      * auto.
      * auto.
      * intros y Hy.
        destruct (content (step s (@Do X (Mac i j x))) y) as [| t l] eqn:E; [ reflexivity | ].
        destruct (Ec y t) as [Ht | [_ ->]]; [ rewrite E; now left | | contradiction ].
        rewrite (Em y Hy) in Ht. contradiction.
      * intros i' j' c Hc. destruct (Ec _ _ Hc) as [Hc' | [E E']]; [ auto | ].
        injection E as -> -> ->. right. split; apply F; trivial.
      * split; [ exact F1 | exact F2 ].
      * unfold counts. destruct (kept (Wp i j) es) eqn:Hk; [ | auto ].
        destruct (in_dec triple_dec (i, j, x) (now ++ old)) as [? | Hni]; [ auto | ]. split.
        -- constructor; [ | exact N1 ]. intros H. apply Hni, in_or_app. now left.
        -- intros i' j' c' [E | H]; [ | auto ]. injection E as <- <- <-.
           split; [ now apply F | split; [ now apply F | now apply Pa ] ].
      * intros i' j' c' [[Hc Hk] | Hc]; [ | apply In', Li; now right ].
        destruct (Ec _ _ Hc) as [Hc' | [E E']]; [ apply In', Li; now left | ].
        injection E as -> -> ->. unfold counts. rewrite Hk.
        destruct (in_dec triple_dec (i, j, x) (now ++ old)) as [Hi | Hi]; [ exact Hi | now left ].
    + (* a score is read *)
      assert (E : step s (@Do X (Form i j)) = s) by (destruct s; cbn; f_equal).
      rewrite E in *. clear E.
      destruct P0 as [[C1 C2] [S1 S2] F Pa [Z1 Z2] Em Co Fr [F1 F2] [N1 N2] O Li].
      assert (Hp : In (Wp i j) (fast s)) by (apply Hn; cbn; auto).
      assert (Kp : kept (Wp i j) (@Do X (Form i j) :: es) = true).
      { cbn [kept]. destruct (gword_dec (Wp i j) (Wp i j)); [ reflexivity | congruence ]. }
      assert (Hk : forall y, kept y es = true -> kept y (@Do X (Form i j) :: es) = true).
      { intros y Hy. cbn [kept]. destruct (gword_dec (Wp i j) y); auto. }
      set (known := if in_dec gword_dec (Wp i j) seen then true
                    else if in_dec pair_dec (i, j) formed then true else false).
      exists k, r, seen, fresh, stored, (if known then formed else (i, j) :: formed), now, old.
      assert (If : incl formed (if known then formed else (i, j) :: formed)).
      { destruct known; [ | apply incl_tl ]; apply incl_refl. }
      split; [ | split; [ apply incl_refl | ] ].
      * split; trivial.
        -- split; lia.
        -- auto.
        -- intros i' j' H1 H2. apply Pa; auto.
        -- auto.
        -- intros y Hy. destruct (Fr y Hy) as [? | [? | [(i' & j' & -> & ?) | [Hf Hyk]]]]; auto.
           ++ right; right; left. exists i', j'. auto.
           ++ destruct (gword_dec (Wp i j) y) as [<- | N].
              ** unfold known. destruct (in_dec gword_dec (Wp i j) seen); [ now left | ].
                 right; right; left. exists i, j. split; [ reflexivity | ].
                 destruct (in_dec pair_dec (i, j) formed); [ assumption | now left ].
              ** right; right; right. split; [ exact Hf | ]. cbn [kept] in Hyk.
                 destruct (gword_dec (Wp i j) y); [ contradiction | exact Hyk ].
        -- unfold known. destruct (in_dec gword_dec (Wp i j) seen) as [? | Hns]; [ auto | ].
           destruct (in_dec pair_dec (i, j) formed) as [? | Hnf]; [ auto | ]. split.
           ++ now constructor.
           ++ intros p [<- | Hpf] c Hc; [ | now apply F2 ]. cbn [fst snd].
              destruct (Co i j c (Hr c Hc)); [ contradiction | assumption ].
        -- auto.
        -- intros i' j' c [[H1 H2] | H1]; apply Li; auto.
      * intros i' j' E c Hc. injection E as <- <-. apply Li. left. split; [ now apply Hr | exact Kp ].
Qed.

Lemma phase_run es : forall s k r spent seen fresh stored formed now old,
  phase s es k r spent seen fresh stored formed now old -> valid M s es ->
  exists k' r' seen' fresh' stored' formed' now' old',
    phase (run s es) [] k' r' (spent + traffic es) seen' fresh' stored' formed' now' old' /\
    incl (now ++ old) (now' ++ old') /\
    (forall i j, In (@Do X (Form i j)) es -> forall c, c < d -> In (i, j, c) (now' ++ old')).
Proof.
  induction es as [| e es IH]; intros s k r spent seen fresh stored formed now old P V.
  - exists k, r, seen, fresh, stored, formed, now, old. cbn. rewrite Nat.add_0_r.
    split; [ exact P | split; [ apply incl_refl | contradiction ] ].
  - destruct V as (He & HM & V).
    destruct (phase_step _ _ _ _ _ _ _ _ _ _ _ _ P He HM)
      as (k1 & r1 & a1 & b1 & c1 & d1 & n1 & o1 & P1 & I1 & F1).
    destruct (IH _ _ _ _ _ _ _ _ _ _ P1 V) as (k2 & r2 & a2 & b2 & c2 & d2 & n2 & o2 & P2 & I2 & F2).
    exists k2, r2, a2, b2, c2, d2, n2, o2. unfold traffic in *. cbn [total].
    rewrite Nat.add_assoc. split; [ exact P2 | split; [ now apply incl_tran with (n1 ++ o1) | ] ].
    intros i j [-> | H] c Hc; [ apply I2; now apply F1 | now apply F2 ].
Qed.
End Phases.

Theorem small_memory_bound d M nq nk (es : list (event (scores d))) :
  0 < d -> 0 < M -> M <= d * d ->
  valid M (init (scores d)) es ->
  (forall i j, i < nq -> j < nk -> In (@Do (scores d) (Form i j)) es) ->
  (nq * nk * d) * (nq * nk * d) <= 5 * M * ((traffic es + M) * (traffic es + M)).
Proof.
  intros Hd HM Hs V H.
  destruct (phase_run d M Hd HM Hs es (init _) 0 0 0 [] [] [] [] [] [])
    as (k & r & seen & fresh & stored & formed & now & old & P & _ & F); trivial.
  { split; cbn; try contradiction; try lia; try (split; [ constructor | ]); try lia; try tauto.
    split; [ lia | constructor ]. }
  cbn [Nat.add] in P.
  pose proof (phase_products d M Hd HM Hs _ _ _ _ _ _ _ _ _ _ _ P) as Hn.
  destruct P as [[C1 C2] _ _ _ _ _ _ _ _ _ O _].
  set (N := nq * nk * d).
  assert (HN : N <= length now + length old).
  { unfold N. rewrite <- app_length.
    rewrite <- (seq_length nq 0), <- (seq_length nk 0), <- (seq_length d 0), <- !prod_length.
    apply NoDup_incl_length; [ repeat apply NoDup_list_prod; apply seq_NoDup | ].
    intros [[i j] c] Ht. apply in_prod_iff in Ht as [Hp Hc]. apply in_prod_iff in Hp as [Hi Hj].
    apply in_seq in Hi, Hj, Hc. apply F; [ apply H; lia | lia ]. }
  set (t := traffic es) in *. set (S0 := most M) in *.
  assert (HS : S0 * S0 <= 5 * (M * M * M)) by apply Nat.sqrt_spec, Nat.le_0_l.
  assert (A : N <= (k + 1) * S0) by lia.
  assert (B : N * M <= (t + M) * S0).
  { apply Nat.le_trans with ((k + 1) * S0 * M); [ now apply Nat.mul_le_mono_r | ].
    replace ((k + 1) * S0 * M) with ((k * M + M) * S0) by lia. apply Nat.mul_le_mono_r. lia. }
  assert (D : (N * M) * (N * M) <= ((t + M) * S0) * ((t + M) * S0)) by now apply Nat.mul_le_mono.
  assert (E : ((t + M) * (t + M)) * (S0 * S0) <= ((t + M) * (t + M)) * (5 * (M * M * M)))
    by (apply Nat.mul_le_mono_l; exact HS).
  apply (Nat.mul_le_mono_pos_l _ _ (M * M)); [ nia | ]. lia.
Qed.
